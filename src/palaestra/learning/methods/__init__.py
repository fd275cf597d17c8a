"""Methods: named algorithms, and the parts they are made of."""
