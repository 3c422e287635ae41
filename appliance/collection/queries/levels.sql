-- Racks and versions whose devices differ as a group, the largest difference first.
SELECT * FROM levels ORDER BY abs(effect) DESC, name, covariate, level;
