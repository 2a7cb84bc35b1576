"""What can still be read of a damaged file of SQLite's, and a whole new file made of it.

pages     the newest copy of each page: of the file, or of the log beside it (`-wal`)
cells     the rows of one page
tables    the rows of each table: first along the table's tree, then from pages that no tree reaches
recover   the steps: read, write a new file, mend what must agree, check, put it in place of the old one

SQLite itself cannot do the first three: it stops at the first damaged page of a tree, and opens nothing whose first page is damaged. The
format is fixed for ever (https://www.sqlite.org/fileformat2.html), and so are the schemas that we wrote.
"""
