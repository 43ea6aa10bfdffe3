#include "tools/trace/trace.h"

int main(int argc, char** argv) { return farside::trace::run_trace(argc, argv); }
