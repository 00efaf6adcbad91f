"""A hook that writes down what the client gave it: `recorder.py EVENT`, into `$REC_DIR/events.jsonl`."""

import json
import os
import sys
import time

entry = json.load(sys.stdin)
entry["recorded_at"] = time.time()
line = (json.dumps(entry) + "\n").encode()
log = os.open(os.environ["REC_DIR"] + "/events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(log, line)
os.close(log)
