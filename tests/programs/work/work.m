rand("twister", 1);
matrix = rand(1200);
values = rand(4e6, 1);
[sorted, order] = sort(values);
printf("%.6f %.6f %d\n", sorted(12345), sum(values(order) - sorted), mod(sum(order .* (1:4e6)'), 1000003));
printf("%.4e\n", norm(matrix * inv(matrix) - eye(1200)) < 1e-6);
printf("%.6f\n", sum(abs(fft(values(1:2^20)))) / 2^20);
