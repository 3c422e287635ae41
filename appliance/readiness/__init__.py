"""What a run asks of its place before it begins: a folder, room on the disk, and a quiet node."""
