"""The nouns, and their JSON.

Frozen records with strict readers, split by subject, and the vocabulary of device facts that all
vendors share. No file is opened here and nothing is computed.
"""
