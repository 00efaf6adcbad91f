"""Small tools around the file system: durable writes, kernel locks, descriptors, threads."""
