set.seed(1)
frame <- data.frame(key = sample(5000, 1500000, TRUE), value = round(runif(1500000), 6))
sums <- aggregate(value ~ key, frame, sum)
sorted <- frame[order(frame$value, frame$key), ]
model <- lm(value ~ key, frame[1:200000, ])
print(dim(sums)); print(head(sums)); print(sorted[c(1, 777777, 1500000), ]); print(coef(model))
