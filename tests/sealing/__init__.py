"""What must not lie anywhere in the clear: sealed contents, redacted texts, kept conversations."""
