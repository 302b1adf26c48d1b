module github.com/freshet-io/freshet/client

go 1.22
