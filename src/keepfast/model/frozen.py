"""Texts that are written into stores, key files, bundles and task databases, or that keys are derived from.

They keep the first name of the project for good. Readers compare them, and a key derived from another text is another key: if
any of them changed, nothing that was written before could be opened.
"""

STORE = "holdfast store"
"""The first line of a store's `format`."""
KEY_FILE = "holdfast key"
"""The first line of a key file."""
KEY_BACKUP = "holdfast keys"
"""Identifies a backup of keys; sealed together with them."""

SET_ID = "holdfast 2026 key set id"
SYNTHETIC_NAMES = "holdfast 2026 key for synthetic names"
CONTENTS = "holdfast 2026 key for contents"
NAMED_VALUES = "holdfast 2026 key for named values"
PROOFS = "holdfast 2026 key for proofs"
WRAPPING_ID = "holdfast 2026 id of a wrapping key"
"""Purposes of keys, as BLAKE3 mixes them in."""

DOCUMENT = b"holdfast document\0"
"""Precedes a task's document in the input of its authentication code."""
SUPERVISED_IGNORE = b"# holdfast\n*\n"
"""The `.gitignore` that identifies folders of the supervisor in a workspace."""
SCHEMA = "holdfast"
"""The schema of our tables in a PostgreSQL database."""

FORMER = "holdfast"
"""The first name of the project: of its folders, its service and its module, until they are taken over."""
FORMER_MARKER = b".holdfast"
"""The marker's folder in a workspace, by the first name. Never captured; read if there is no other."""
FORMER_TAG, FORMER_COMMANDS = "holdfast", "/holdfast:"
"""In recorded conversations: the tag around our own messages, and the prefix of our slash commands."""
