x = 41
x += 1
print("end")
