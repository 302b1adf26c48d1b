package order
