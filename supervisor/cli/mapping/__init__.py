"""What `nightcrew map` needs beside its command: where items come from, the picture of its progress, and what it would do."""
