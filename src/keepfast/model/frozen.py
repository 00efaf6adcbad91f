"""Texts that stand in stores, key files, bundles and task databases, and in what keys are derived from.

They have the first name of the project for good. A reader compares them, and a key that is derived from another text is another
key: with any of them changed, nothing that was written before would open.
"""

STORE = "holdfast store"
"""The first line of a store's `format`."""
KEY_FILE = "holdfast key"
"""The first line of a key file."""
KEY_BACKUP = "holdfast keys"
"""What a backup of keys says it is; it is sealed together with them."""

SET_ID = "holdfast 2026 key set id"
SYNTHETIC_NAMES = "holdfast 2026 key for synthetic names"
CONTENTS = "holdfast 2026 key for contents"
NAMED_VALUES = "holdfast 2026 key for named values"
PROOFS = "holdfast 2026 key for proofs"
WRAPPING_ID = "holdfast 2026 id of a wrapping key"
"""Purposes of keys, as BLAKE3 mixes them in."""

DOCUMENT = b"holdfast document\0"
"""Stands before a task's document when its authentication code is made."""
SUPERVISED_IGNORE = b"# holdfast\n*\n"
"""The `.gitignore` by which folders of the supervisor in a workspace say whose they are."""
SCHEMA = "holdfast"
"""The schema of our tables in a PostgreSQL database."""

FORMER = "holdfast"
"""The first name of the project: of its folders, its service and its module, until they are taken over."""
FORMER_MARKER = b".holdfast"
"""The marker's folder in a workspace, by the first name. It is never captured either, and read where there is no other."""
FORMER_TAG, FORMER_COMMANDS = "holdfast", "/holdfast:"
"""In recorded conversations: what we told an agent stands between tags of this name; our slash commands begin with that."""
