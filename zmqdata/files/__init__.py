"""Names of files: paths and URLs of users, names in messages, and patterns."""
