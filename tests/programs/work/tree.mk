# Compiles 9 files, links them and runs the program: make, sh, sed, g++, cc1plus, as, collect2 and ld.
PARTS := $(shell seq 1 8)
OBJECTS := $(PARTS:%=part%.o)

all: program
	./program
	sha256sum part*.o

program: $(OBJECTS) main.o
	g++ -o $@ $^

part%.cc:
	sed 's/work0/work_part$*/' $(INPUT)/part.cc > $@

main.cc:
	(echo '#include <string>'; echo '#include <vector>'; \
	 for part in $(PARTS); do echo "int work_part$$part(const std::vector<std::string>&);"; done; \
	 echo 'int main() { int sum = 0;'; \
	 for part in $(PARTS); do echo "sum += work_part$$part({\"one\", \"two\", \"three\"});"; done; \
	 echo 'return __builtin_printf("%d ", sum) < 0; }') > $@

%.o: %.cc
	g++ -std=c++20 -O1 -c -o $@ $<
