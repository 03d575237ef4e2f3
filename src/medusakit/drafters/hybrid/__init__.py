"""Several sources of guesses, calibrated as they run and merged into one trie."""
