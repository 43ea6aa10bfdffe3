/* Calls a function of a shared object that it is linked with. The program itself could not be loaded on a server, which
 * does not have this shared object. */
#include <farside/offload.h>
#include <stdio.h>

int offload_version(void* function, const void* arguments, size_t bytes, struct farside_offload_output* output);

int main(void) {
  int version = 0;
  struct farside_offload_request request = {.entry = offload_version, .mode = FARSIDE_OFFLOAD_AUTOMATIC};
  struct farside_offload_reply reply = {.result = {.data = &version, .capacity = sizeof version}};
  if (farside_offload_servers() > 0) request.mode = FARSIDE_OFFLOAD_SERVER;
  int result = farside_offload_call(&request, &reply);
  if (result < 0) fprintf(stderr, "error %d: %s\n", result, reply.text);
  printf("%d %d\n", version, result);
  fprintf(stderr, "%s\n", reply.on_server ? "server" : "local");
  return 0;
}
