// A shop's customers and their orders, in ordinary memory: the program that docs/guide/objects.md ports to far objects.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
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
  std::shared_ptr<Item> item;
};

struct Orders {
  uint64_t used = 0;
  Order order[6];
  std::unique_ptr<Orders> older;
};

struct Shop {
  std::vector<std::unique_ptr<Customer>> customers;
  std::vector<std::unique_ptr<Orders>> orders;  // each customer's newest ones
  std::vector<std::shared_ptr<Item>> items;
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
  for (uint64_t i = 0; i < kItems; i++) shop.items.push_back(std::make_shared<Item>(Item{100 + i * 7}));
  for (uint64_t i = 0; i < kCustomers; i++) {
    shop.customers.push_back(std::make_unique<Customer>(Customer{i}));
    snprintf(shop.customers[i]->address, sizeof shop.customers[i]->address, "%" PRIu64 " Main Street", i);
  }
  shop.orders.resize(kCustomers);
}

void buy(Shop& shop, uint64_t who, uint64_t what, uint64_t count) {
  std::unique_ptr<Orders>& newest = shop.orders[who];
  if (!newest || newest->used == 6) {
    auto orders = std::make_unique<Orders>();
    orders->older = std::move(newest);
    newest = std::move(orders);
  }
  newest->order[newest->used++] = {count, shop.items[what]};
  shop.customers[who]->spent += count * shop.items[what]->price;
}

// What a customer's orders were worth, of the last twelve at most.
uint64_t recent(const Shop& shop, uint64_t who) {
  uint64_t worth = 0;
  const Orders* orders = shop.orders[who].get();
  for (int i = 0; i < 2 && orders; i++, orders = orders->older.get()) {
    for (uint64_t k = 0; k < orders->used; k++) worth += orders->order[k].count * orders->order[k].item->price;
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

uint64_t turnover(const Shop& shop) {
  uint64_t sum = 0;
  for (const auto& customer : shop.customers) sum += customer ? customer->spent : 0;
  return sum;
}

// A checksum of the addresses of all customers with purchases, in order.
uint64_t mail(const Shop& shop) {
  uint64_t sum = 0;
  for (const auto& customer : shop.customers) {
    if (!customer || customer->spent == 0) continue;
    for (const char* c = customer->address; *c; c++) sum = sum * 31 + static_cast<unsigned char>(*c);
  }
  return sum;
}

void forget(Shop& shop, uint64_t who) {
  shop.customers[who] = nullptr;
  while (shop.orders[who]) shop.orders[who] = std::move(shop.orders[who]->older);
}

int main() {
  Shop shop;
  open(shop);
  std::thread first([&] { sell(shop, 0, kCustomers / 2, kSales / 2); });
  sell(shop, kCustomers / 2, kCustomers, kSales / 2);
  first.join();
  printf("turnover %" PRIu64 "\n", turnover(shop));
  uint64_t sum = 0;
  for (uint64_t f = 0; f < 16; f++) sum += views(shop, f, kViews / 16);
  printf("views %" PRIu64 "\n", sum);
  shop.items[0]->price = 1;  // in all orders of this item
  printf("item 0 has %ld owners; views %" PRIu64 "\n", shop.items[0].use_count(), views(shop, 99, kViews / 16));
  printf("mail %" PRIu64 "\n", mail(shop));
  for (uint64_t who = 0; who < kCustomers; who++) {
    if (who % 8 != 0) forget(shop, who);
  }
  printf("turnover %" PRIu64 ", views %" PRIu64 "\n", turnover(shop), views(shop, 7, kViews));
}
