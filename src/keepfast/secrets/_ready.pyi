MADE_BY: tuple[object, ...]
PATTERNS: dict[str, tuple[int, bytes, int, dict[str, int], tuple[str | None, ...]]]
