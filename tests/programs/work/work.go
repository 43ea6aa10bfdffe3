// Package main fills a map and sorts in several goroutines. cgo makes it a dynamic program.
package main

// #include <stdlib.h>
// #include <string.h>
import "C"

import (
	"crypto/sha256"
	"fmt"
	"sort"
	"sync"
	"unsafe"
)

func fill(seed int, words []string) {
	for i := range words {
		words[i] = fmt.Sprintf("entry %d of %d", (i*7919+seed)%1000003, seed)
	}
	sort.Strings(words)
}

func main() {
	var group sync.WaitGroup
	parts := make([][]string, 4)
	for part := range parts {
		parts[part] = make([]string, 200000)
		group.Add(1)
		go func(part int) { defer group.Done(); fill(part, parts[part]) }(part)
	}
	group.Wait()
	index := map[string]int{}
	digest := sha256.New()
	for _, words := range parts {
		for at, word := range words {
			index[word] = at
			digest.Write([]byte(word))
		}
	}
	const size = 32 << 20
	block := C.malloc(size)
	C.memset(block, 7, size)
	digest.Write(unsafe.Slice((*byte)(block), size))
	C.free(block)
	fmt.Printf("%d %d %x\n", len(index), index[parts[2][12345]], digest.Sum(nil))
}
