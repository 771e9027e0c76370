"""The page that shows a running cluster in a browser, and the same page as a file."""
