// Package main allocates, collects and checks memory in many goroutines. Without cgo it is a static program.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

type node struct {
	left, right *node
	key         int
	text        string
}

func insert(root *node, key int) *node {
	if root == nil {
		return &node{key: key, text: fmt.Sprintf("node %d", key)}
	}
	if key < root.key {
		root.left = insert(root.left, key)
	} else if key > root.key {
		root.right = insert(root.right, key)
	}
	return root
}

func digest(root *node, write func(string)) {
	if root == nil {
		return
	}
	digest(root.left, write)
	write(root.text)
	digest(root.right, write)
}

// Trees that are built and dropped, so that the collector works all the time.
func trees(seed, rounds int) string {
	hash := sha256.New()
	for round := 0; round < rounds; round++ {
		var root *node
		for i := 0; i < 20000; i++ {
			root = insert(root, (i*7919+seed+round)%1000003)
		}
		digest(root, func(text string) { io.WriteString(hash, text) })
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8])
}

func collect(goroutines int) {
	results := make([]string, goroutines)
	var group sync.WaitGroup
	for i := range results {
		group.Add(1)
		go func(i int) { defer group.Done(); results[i] = trees(i, 4) }(i)
	}
	group.Wait()
	sort.Strings(results)
	fmt.Println("trees", strings.Join(results, " "))
}

func keep(megabytes int) {
	blocks := make([][]byte, megabytes)
	for i := range blocks {
		blocks[i] = make([]byte, 1<<20)
		for j := range blocks[i] {
			blocks[i][j] = byte(i + j>>8)
		}
	}
	runtime.GC()
	for pass := 0; pass < 2; pass++ {
		hash := sha256.New()
		for _, block := range blocks {
			hash.Write(block)
		}
		fmt.Printf("blocks %x\n", hash.Sum(nil)[:8])
	}
}

func echo() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(connection, connection); connection.Close() }()
		}
	}()
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			connection, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				panic(err)
			}
			sent := strings.Repeat(fmt.Sprint(i), 1<<20)
			go func() { io.WriteString(connection, sent); connection.(*net.TCPConn).CloseWrite() }()
			got, err := io.ReadAll(connection)
			if err != nil || string(got) != sent {
				panic("what came back differs")
			}
		}(i)
	}
	group.Wait()
	listener.Close()
	fmt.Println("echo")
}

func signals() {
	arrived := make(chan os.Signal, 100)
	signal.Notify(arrived, syscall.SIGUSR1)
	for i := 0; i < 100; i++ {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		select {
		case <-arrived:
		case <-time.After(10 * time.Second):
			panic("a signal is lost")
		}
	}
	defer func() { fmt.Println("signals", recover() != nil) }()
	var none *node
	fmt.Println(none.key)
}

func children() {
	if len(os.Args) > 1 {
		return
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	for i := 0; i < 3; i++ {
		output, err := exec.Command(self, "child").Output()
		if err != nil {
			panic(err)
		}
		fmt.Print("child ", string(output))
	}
	output, err := exec.Command("sh", "-c", "seq 1 100000 | sort -r | md5sum").Output()
	if err != nil {
		panic(err)
	}
	fmt.Print(string(output))
}

func main() {
	if len(os.Args) > 1 {
		fmt.Println(trees(1, 1))
		return
	}
	keep(48)
	collect(32)
	echo()
	signals()
	children()
}
