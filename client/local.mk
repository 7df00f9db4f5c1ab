# libkvcache, the client library, and its compute part.
