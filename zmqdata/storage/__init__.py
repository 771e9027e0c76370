"""Files of elements: records, chunks, manifests, checksums and the file systems that
hold them.
"""
