(define table (make-hash-table))
(do ((i 0 (+ i 1))) ((= i 200000))
  (hash-set! table (number->string (modulo (* i 7919) 1000003)) (list i (* i i))))
(define keys (sort (hash-map->list (lambda (key value) key) table) string<?))
(define sum
  (let next ((keys keys) (sum 7))
    (if (null? keys)
        sum
        (next (cdr keys) (modulo (+ (* sum 31) (cadr (hash-ref table (car keys)))) 1000000007)))))
(display (list (length keys) sum))
(newline)
