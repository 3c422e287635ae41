"""Stress beside a burn-in's products: a process for each kind, every byte of it compared."""
