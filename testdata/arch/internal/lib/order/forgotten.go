package order

const forgotten = 1
