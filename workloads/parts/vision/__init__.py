"""Image networks and how they are trained.

Classifiers, JPEG files, crops and masks, students and teachers. Bounds of a training step are in
`training/`, pictures in `datasets/`.
"""
