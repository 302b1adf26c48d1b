module github.com/freshet-io/freshet/slogring

go 1.25
