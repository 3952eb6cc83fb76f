"""Scripts behind the Makefile; none is part of the installed package."""
