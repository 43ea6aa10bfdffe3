// An audit library of the dynamic linker (LD_AUDIT) that only loads.
unsigned int la_version(unsigned int version);
unsigned int la_version(unsigned int version) { return version; }
