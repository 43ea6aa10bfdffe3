// An object that cannot be loaded: what it needs is defined nowhere.
extern "C" int no_such_symbol();
extern "C" __attribute__((visibility("default"))) int missing() { return no_such_symbol(); }
