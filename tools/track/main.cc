#include "tools/track/track.h"

int main(int argc, char** argv) { return farside::track::run_track(argc, argv); }
