# Man pages, in mdoc.
