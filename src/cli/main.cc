#include "cli/commands.h"

int main(int argc, char** argv) { return farside::cli::run_farside(argc, argv); }
