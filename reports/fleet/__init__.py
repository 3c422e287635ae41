"""The site of a collected fleet, and its summary on paper: from tables to pages that stand alone.

Every page is made from the answers of the shipped queries and from nothing else, so that whoever
has the tables can ask the same. The same tables give the same bytes, but for the signature in the
PDF. No page needs a server, a network or a script; the search does with a script of its own.
"""
