"""The contract between the packages: `.proto` files and the code that protoc makes of them (`make protos`)."""
