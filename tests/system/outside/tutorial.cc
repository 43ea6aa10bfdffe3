// A shop's customers and their orders, in far objects. docs/guide/objects.md explains this program step by step;
// tutorial_before.cc is the same program in ordinary memory, with the same output. Statistics go to stderr.
#include <farside/fiber.hpp>
#include <farside/ptr.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

struct Customer {
  uint64_t id = 0, spent = 0;
  char address[112] = {};
};

struct Item {
  uint64_t price = 0;
  char name[24] = {};
};

struct Order {
  uint64_t count = 0;
  farside::shared_ptr<Item> item;
};

struct Orders {
  uint64_t used = 0;
  Order order[6];
  farside::unique_ptr<Orders> older;
};
template <>
struct farside::far_pointers<Orders> : farside::fields<&Orders::older> {};

struct Shop {
  std::vector<farside::unique_ptr<Customer>> customers;
  std::vector<farside::unique_ptr<Orders>> orders;  // each customer's newest ones
  std::vector<farside::shared_ptr<Item>> items;
};

constexpr uint64_t kCustomers = 150000, kItems = 500, kSales = 400000, kViews = 320000;

uint64_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// One of `count`: a tenth of them half of the time, and they are not neighbours.
uint64_t pick(uint64_t* state, uint64_t count) {
  uint64_t share = next_random(state) >> 11;  // of 2^20
  uint64_t rank = ((share * share >> 20) * share >> 20) * count >> 20;
  return rank * 7919 % count;
}

void open(Shop& shop) {
  for (uint64_t i = 0; i < kItems; i++) shop.items.push_back(farside::make_shared<Item>(Item{100 + i * 7}));
  shop.customers.reserve(kCustomers);
  for (uint64_t i = 0; i < kCustomers; i++) {
    Customer customer{i};
    snprintf(customer.address, sizeof customer.address, "%" PRIu64 " Main Street", i);
    shop.customers.push_back(farside::make_unique<Customer>(customer));
  }
  shop.orders.resize(kCustomers);
}

void buy(Shop& shop, uint64_t who, uint64_t what, uint64_t count) {
  farside::deref_scope scope;
  farside::unique_ptr<Orders>& newest = shop.orders[who];
  if (!newest || newest.deref(scope)->used == 6) {
    auto orders = farside::make_unique<Orders>();
    orders.deref_mut(scope)->older = std::move(newest);
    newest = std::move(orders);
  }
  Orders* orders = newest.deref_mut(scope);
  orders->order[orders->used++] = {count, shop.items[what]};
  shop.customers[who].deref_mut(scope)->spent += count * shop.items[what].deref(scope)->price;
}

// What a customer's orders were worth, of the last twelve at most.
uint64_t recent(const Shop& shop, uint64_t who) {
  uint64_t worth = 0;
  farside::deref_scope scope;
  const farside::unique_ptr<Orders>* next = &shop.orders[who];
  for (int i = 0; i < 2 && *next; i++) {
    const Orders* orders = next->deref(scope);
    for (uint64_t k = 0; k < orders->used; k++)
      worth += orders->order[k].count * orders->order[k].item.deref(scope)->price;
    next = &orders->older;
  }
  return worth;
}

// Sales to customers [begin, end).
void sell(Shop& shop, uint64_t begin, uint64_t end, uint64_t sales) {
  uint64_t state = begin;
  for (uint64_t i = 0; i < sales; i++) {
    uint64_t who = begin + pick(&state, end - begin);
    uint64_t what = pick(&state, kItems);
    buy(shop, who, what, 1 + i % 3);
  }
}

uint64_t views(const Shop& shop, uint64_t seed, uint64_t count) {
  uint64_t state = seed, sum = 0;
  for (uint64_t i = 0; i < count; i++) sum = sum * 31 + recent(shop, pick(&state, kCustomers));
  return sum;
}

// The same by 16 fibers on two threads: while one waits for an object, the others run.
uint64_t views_by_fibers(const Shop& shop) {
  uint64_t sums[16];
  farside::run_fibers(2, [&] {
    std::vector<farside::fiber> fibers;
    for (uint64_t f = 0; f < 16; f++) fibers.emplace_back([&, f] { sums[f] = views(shop, f, kViews / 16); });
  });
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

// One pass over all, which is to displace nothing that is used more often.
uint64_t turnover(const Shop& shop) {
  uint64_t sum = 0;
  for (const auto& customer : shop.customers) {
    farside::deref_scope scope;
    sum += customer ? customer.deref<true>(scope)->spent : 0;
  }
  return sum;
}

// Fetches customers [begin, begin + count).
void fetch_ahead(Shop& shop, size_t begin, size_t count) { farside::prefetch(&shop.customers[begin], count); }

// A checksum of the addresses of all customers with purchases, in order.
uint64_t mail(Shop& shop) {
  constexpr size_t kBatch = 32;
  uint64_t sum = 0;
  for (size_t i = 0; i < shop.customers.size(); i++) {
    if (i % kBatch == 0) fetch_ahead(shop, i, std::min(kBatch, shop.customers.size() - i));
    if (!shop.customers[i]) continue;
    Customer customer = shop.customers[i].load();
    if (customer.spent == 0) continue;
    for (const char* c = customer.address; *c; c++) sum = sum * 31 + static_cast<unsigned char>(*c);
  }
  return sum;
}

void forget(Shop& shop, uint64_t who) {
  shop.customers[who] = nullptr;
  farside::unique_ptr<Orders>& newest = shop.orders[who];
  while (newest) {
    farside::deref_scope scope;
    auto older = std::move(newest.deref_mut(scope)->older);
    newest = std::move(older);
  }
}

void print_statistics() {
  farside_object_stats stats;
  int far = farside_get_object_stats(&stats) == 0;
  fprintf(stderr, "far=%d objects=%" PRIu64 " bytes=%" PRIu64 " segments=%" PRIu64, far, stats.objects,
          stats.object_bytes, stats.segments);
  fprintf(stderr, " by_object=%" PRIu64 " taken=%" PRIu64 " moved=%" PRIu64 " freed=%" PRIu64 "\n",
          stats.segments_object_path, stats.taken, stats.moved, stats.segments_freed);
}

int main() {
  Shop shop;
  open(shop);
  std::thread first([&] { sell(shop, 0, kCustomers / 2, kSales / 2); });
  sell(shop, kCustomers / 2, kCustomers, kSales / 2);
  first.join();
  printf("turnover %" PRIu64 "\n", turnover(shop));
  printf("views %" PRIu64 "\n", views_by_fibers(shop));
  // All orders of this item have the new price.
  Item cheap = shop.items[0].load();
  cheap.price = 1;
  shop.items[0].store(cheap);
  printf("item 0 has %ld owners; views %" PRIu64 "\n", shop.items[0].use_count(), views(shop, 99, kViews / 16));
  printf("mail %" PRIu64 "\n", mail(shop));
  for (uint64_t who = 0; who < kCustomers; who++) {
    if (who % 8 != 0) forget(shop, who);
  }
  printf("turnover %" PRIu64 ", views %" PRIu64 "\n", turnover(shop), views(shop, 7, kViews));
  print_statistics();
}
