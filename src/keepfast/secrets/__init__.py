"""How secrets look, which files hold some, and how texts are redacted."""
