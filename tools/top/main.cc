#include "tools/top/top.h"

int main(int argc, char** argv) { return farside::top::run_top(argc, argv); }
