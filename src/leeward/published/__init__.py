"""What papers and repositories published: settings and scores, as data with their sources."""
