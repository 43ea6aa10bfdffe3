// Carries the precompiled headers of the tests (farside_targets.cmake), and does nothing.
int main() { return 0; }
