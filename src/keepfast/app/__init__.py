"""The use cases, one file each: the only callers that join store and workspace."""
