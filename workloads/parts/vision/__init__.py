"""Image networks and how they are trained.

Classifiers, JPEG files, crops and masks, students and teachers.
"""
