// Files for what no other user may read and what is not needed later: created exclusively, of mode 0600, and unlinked
// at once.
#pragma once

namespace farside {

// path: a folder, or a file that does not exist yet. Returns the descriptor or -errno. *bypasses_cache: reads and
// writes use no RAM of the page cache, and have to be aligned to pages.
int open_private_file(const char* path, bool* bypasses_cache);

}  // namespace farside
