/* A thread waits in a system call while the other one collects. Its list can be found only from its stack. */
#define GC_THREADS
#include <gc.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

struct node {
  struct node* next;
  long value, fill[6];
};

static int channel[2];

static void* wait_with_list(void* unused) {
  struct node* volatile list = NULL;
  for (long i = 0; i < 500000; i++) {
    struct node* node = GC_MALLOC(sizeof *node);
    node->next = list;
    node->value = i;
    list = node;
  }
  char byte;
  if (read(channel[0], &byte, 1) != 1) return unused;
  long sum = 0, count = 0;
  for (struct node* node = list; node; node = node->next, count++) sum += node->value;
  printf("%ld %ld\n", count, sum);
  return unused;
}

int main(void) {
  GC_INIT();
  pthread_t thread;
  if (pipe(channel) || pthread_create(&thread, NULL, wait_with_list, NULL)) return 1;
  usleep(500000);
  for (int round = 0; round < 5; round++) {
    GC_gcollect();
    for (long i = 0; i < 200000; i++) ((struct node*)GC_MALLOC(sizeof(struct node)))->value = -1;
  }
  if (write(channel[1], "x", 1) != 1) return 1;
  pthread_join(thread, NULL);
  return 0;
}
