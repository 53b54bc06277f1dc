"""Keep a store's results in a database: SQLite in the store's folder, or PostgreSQL; large files in blobs."""
