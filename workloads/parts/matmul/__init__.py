"""Matrix products: operands, references by rows and the bound on their error."""
