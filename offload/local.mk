# Nothing is built here yet. The disk store and its I/O engines will be. Until then
# caches live as long as the keeper, or the descriptor store of systemd.
