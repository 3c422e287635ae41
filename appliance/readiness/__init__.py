"""What a run asks of its place before it begins: a folder, room on the disk, and a quiet node.

Asked by the verbs and shown by `doctor`. What rulings make of a disturbance lives in evidence/, and
what a host needs to start a container in container/.
"""
