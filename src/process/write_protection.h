// Asynchronous write protection (Linux 6.7): a userfaultfd protects pages, the kernel lifts the protection at the first
// write without a handler, and PAGEMAP_SCAN reports which pages were written.
#pragma once
#include <cstdint>
#include <vector>

#include "process/areas.h"
#include "process/pagemap.h"

namespace farside::process {

// Chooses the mode of a new userfaultfd. A negative error where the kernel has none.
int use_asynchronously(const Descriptor& uffd);

// Registers pages of the process that opened the userfaultfd. A negative error: -ESRCH once the process has ended.
int protect(const Descriptor& uffd, uint64_t begin, uint64_t end);

// Appends the pages of the area that are not write-protected, and protects them. A negative error if a part of the area
// is not registered.
long take_written(const Descriptor& pagemap, const Area& area, std::vector<PageRun>* runs);

// The additional time of the first write to a protected page, in ns, measured in this process; 0 if the kernel cannot
// track.
double write_fault_ns();

}  // namespace farside::process
